import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;

import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.runtime.standalone.StandaloneHerder;
import org.apache.kafka.connect.storage.MemoryOffsetBackingStore;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.retry.annotation.Backoff;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;
import org.springframework.util.backoff.FixedBackOff;

/**
 * Consumers as others write them, with Spring for Apache Kafka and with Kafka Connect, and their dead letters:
 *
 *   java-orders    a listener with a DeadLetterPublishingRecoverer; its dead lie in java-orders.DLT
 *   java-shipping  a listener with @RetryableTopic: java-shipping-retry-100, -retry-200, -dlt
 *   java-sink      a sink connector with errors.deadletterqueue: java-sink.dlq
 *
 * The first word of a record says what becomes of it. Each one that a listener gets is printed, with its topic.
 */
public class Consumers {

    static final String SERVERS = System.getProperty("servers");

    public static void main(String[] args) throws Exception {
        new AnnotationConfigApplicationContext(Listeners.class);
        connect(System.getProperty("file"));
        System.out.println("READY");
        new CountDownLatch(1).await();
    }

    static void handle(ConsumerRecord<byte[], byte[]> record) throws Exception {
        String body = new String(record.value(), StandardCharsets.UTF_8);
        System.out.println("GOT " + record.topic() + " " + body);
        switch (body.split(" ")[0]) {
            case "timeout": charge();
            case "denied": throw new AccessDeniedException("the ledger is closed");
            default: // it is handled
        }
    }

    static void charge() {
        try {
            throw new SocketTimeoutException("Read timed out");
        } catch (SocketTimeoutException error) {
            throw new IllegalStateException("cannot charge", error);
        }
    }

    @Configuration
    @EnableKafka
    @EnableKafkaRetryTopic
    public static class Listeners {

        @KafkaListener(topics = "java-orders", groupId = "billing", containerFactory = "recovering")
        public void bill(ConsumerRecord<byte[], byte[]> record) throws Exception {
            handle(record);
        }

        @RetryableTopic(attempts = "3", backoff = @Backoff(delay = 100, multiplier = 2), kafkaTemplate = "template")
        @KafkaListener(topics = "java-shipping", groupId = "shipping")
        public void ship(ConsumerRecord<byte[], byte[]> record) throws Exception {
            handle(record);
        }

        @Bean
        KafkaAdmin admin() {
            return new KafkaAdmin(Map.of("bootstrap.servers", SERVERS));
        }

        @Bean
        KafkaAdmin.NewTopics topics() {
            String[] names = {"java-orders", "java-orders.DLT", "java-shipping", "java-sink", "java-sink.dlq"};
            return new KafkaAdmin.NewTopics(java.util.Arrays.stream(names)
                .map(name -> new NewTopic(name, 2, (short) 1)).toArray(NewTopic[]::new));
        }

        @Bean
        TaskScheduler scheduler() {
            return new ThreadPoolTaskScheduler();
        }

        @Bean
        KafkaTemplate<byte[], byte[]> template() {
            return new KafkaTemplate<>(new DefaultKafkaProducerFactory<>(
                Map.of("bootstrap.servers", SERVERS), new ByteArraySerializer(), new ByteArraySerializer()));
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> kafkaListenerContainerFactory() {
            var factory = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(
                Map.of("bootstrap.servers", SERVERS, "auto.offset.reset", "earliest"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            return factory;
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<byte[], byte[]> recovering() {
            var factory = kafkaListenerContainerFactory();
            var recovering = new ConcurrentKafkaListenerContainerFactory<byte[], byte[]>();
            recovering.setConsumerFactory(factory.getConsumerFactory());
            recovering.setCommonErrorHandler(
                new DefaultErrorHandler(new DeadLetterPublishingRecoverer(template()), new FixedBackOff(10, 2)));
            return recovering;
        }
    }

    static void connect(String file) throws Exception {
        Map<String, String> props = new HashMap<>();
        props.put("bootstrap.servers", SERVERS);
        props.put("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        props.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        props.put("value.converter.schemas.enable", "false");
        props.put("offset.storage.file.filename", "unused: its offsets are in memory");
        props.put("plugin.discovery", "service_load");
        var policy = new AllConnectorClientConfigOverridePolicy();
        policy.configure(Map.of());
        var plugins = new Plugins(props);
        plugins.compareAndSwapWithDelegatingLoader();
        var config = new StandaloneConfig(props);
        var offsets = new MemoryOffsetBackingStore() {
            @Override
            public Set<Map<String, Object>> connectorPartitions(String connector) {
                return Set.of();
            }
        };
        offsets.configure(config);
        var worker = new Worker("worker", Time.SYSTEM, plugins, config, offsets, policy);
        var herder = new StandaloneHerder(worker, "cluster", policy);
        herder.start();
        Map<String, String> sink = new HashMap<>();
        sink.put("name", "orders-sink");
        sink.put("connector.class", "org.apache.kafka.connect.file.FileStreamSinkConnector");
        sink.put("topics", "java-sink");
        sink.put("file", file);
        sink.put("transforms", "cast");
        sink.put("transforms.cast.type", "org.apache.kafka.connect.transforms.Cast$Value");
        sink.put("transforms.cast.spec", "n:int32");
        sink.put("errors.tolerance", "all");
        sink.put("errors.deadletterqueue.topic.name", "java-sink.dlq");
        sink.put("errors.deadletterqueue.topic.replication.factor", "1");
        sink.put("errors.deadletterqueue.context.headers.enable", "true");
        herder.putConnectorConfig("orders-sink", sink, true, (error, made) -> {
            if (error != null) {
                error.printStackTrace();
                System.exit(1);
            }
        });
    }
}
